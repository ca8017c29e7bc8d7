"""One file per page. `add` registers the page."""
