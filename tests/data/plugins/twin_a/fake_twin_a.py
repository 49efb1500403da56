"""One of two plugins that claim the same name."""


class Backend: ...
