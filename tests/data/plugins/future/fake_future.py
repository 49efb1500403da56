"""A backend for a later contract; it need not look like one of today's."""


class Backend:
    protocol = 99
