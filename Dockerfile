# A broker in a container:
#
#     make wheels && docker build -t ottla . && docker run -p 9092:9092 -v ottla:/data ottla
#
# Metadata returns the address that a client connected to, so a mapped port needs no advertised.listeners as long as it is
# the same inside and outside.
FROM python:3.13-slim

RUN --mount=type=bind,source=dist,target=/dist \
    pip install --no-cache-dir "$(ls /dist/ottla-*_"$(uname -m)".whl)[tools]" \
    && useradd --create-home ottla && install -d -o ottla /data

USER ottla
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/ready', timeout=5)"]
ENTRYPOINT ["ottla"]
CMD ["serve", "--host", "0.0.0.0", "--data", "/data"]
