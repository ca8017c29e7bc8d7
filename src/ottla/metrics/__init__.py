"""The broker's metrics over HTTP, for Prometheus and for people: /metrics, /health, /ready.

    catalogue.py    every metric: name, kind, labels, meaning. `docs/metrics.md` is generated from it
    counts.py, ...  collectors: each reads parts of a broker during a scrape, and yields samples
    exposition.py   formats samples as text
    scrape.py       one response to /metrics, in slices
    http.py         the server

Hot paths only increment plain integers of objects that they use anyway (`net/counts.py`, `replica/traffic.py`);
everything else is computed during a scrape.
"""
