"""The broker's metrics over HTTP, for Prometheus and for people: /metrics, /health, /ready.

    catalogue.py    every metric: name, kind, labels, meaning. `docs/metrics.md` is generated from it
    counts.py, ...  collectors: each reads the parts of a broker at a scrape, and yields samples
    exposition.py   samples as text
    scrape.py       one answer to /metrics, in slices
    http.py         the server

The hot paths count in plain integers of objects that they hold anyway (`net/counts.py`, `replica/traffic.py`);
everything else is computed at a scrape.
"""
