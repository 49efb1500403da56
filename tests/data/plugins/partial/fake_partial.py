"""A plugin object that is not a backend."""


class Backend:
    name = "fake_partial"
    protocol = 2

    def available(self) -> bool:
        return True
