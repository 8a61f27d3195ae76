"""A stand-in for tqdm that remembers what it was shown."""


class Bar:
    """A bar in a terminal or, with `disable`, in none."""

    def __init__(self, total, done, description, disable=False):
        self.total, self.n, self.description, self.disable, self.closed = total, done, description, disable, False
        self.shown = [description]

    def set_description_str(self, text, refresh):
        self.shown.append(text.strip())

    def set_postfix(self, values, refresh):
        self.values = values

    def update(self, k):
        self.n += k

    def refresh(self):
        pass

    def close(self):
        self.closed = True
