# One image for every process of Fleetlight; which one is said by the command (docker-compose.yml). It has the extras
# `keystone`, `nova`, `openid` and `traces`, nothing that installs or builds, and what it consists of in
# /opt/fleetlight/sbom.cdx.json.
ARG BASE=python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
FROM $BASE AS build
WORKDIR /build
ENV PIP_NO_CACHE_DIR=1
COPY requirements-image.lock requirements-build.lock ./
COPY scripts/program scripts/program
# A change of the code fetches no library again.
RUN python -m venv --without-pip /opt/fleetlight && scripts/program /opt/fleetlight libraries
# Which folders the wheel holds says pyproject.toml; .dockerignore leaves out what no image needs.
COPY . .
RUN scripts/program /opt/fleetlight

FROM $BASE
RUN useradd --system --uid 10001 --create-home fleetlight \
    && python -m pip uninstall --yes --quiet setuptools wheel pip \
    && rm -rf "$(python -c 'import ensurepip; print(*ensurepip.__path__)')"
COPY --from=build /opt/fleetlight /opt/fleetlight
COPY scripts/container_health.py /opt/fleetlight/health.py
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Fleetlight" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision=$REVISION \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/fleetlight/bin:$PATH PYTHONUNBUFFERED=1 FLEETLIGHT_MONITORING_PORT=9100
USER fleetlight
WORKDIR /home/fleetlight
HEALTHCHECK --interval=10s --timeout=25s --start-period=30s --retries=6 \
    CMD ["python", "/opt/fleetlight/health.py"]
ENTRYPOINT ["fleetlight"]
CMD ["--help"]
