"""One file a page. Each has `add`, which makes its page known."""
