# One image for every process of Fleetlight; which one is said by the command (docker-compose.yml).
FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b AS build
WORKDIR /build
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/fleetlight \
    && /opt/fleetlight/bin/pip install --no-cache-dir --require-hashes -r requirements.lock -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY resources resources
COPY query query
COPY views views
COPY notifications notifications
COPY agents agents
COPY bus bus
COPY cells cells
COPY operations operations
COPY indexer indexer
COPY listing listing
COPY api api
COPY cli cli
RUN /opt/fleetlight/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
RUN useradd --system --uid 10001 --create-home fleetlight
COPY --from=build /opt/fleetlight /opt/fleetlight
ENV PATH=/opt/fleetlight/bin:$PATH PYTHONUNBUFFERED=1
USER fleetlight
WORKDIR /home/fleetlight
ENTRYPOINT ["fleetlight"]
CMD ["--help"]
