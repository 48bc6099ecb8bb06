# syntax=docker/dockerfile:1
# Two images of one build: `weir` (origin, gateway and every other command) and `weir-spark` (the same
# with Spark and Java, for reports). Both run as user 10001 and need to write only to /tmp and to
# the folders that are volumes.

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/weir/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A volume begins with the owner that its folder has here.
RUN groupadd --gid 10001 weir \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin weir \
    && install -d -o weir -g weir -m 0750 \
        /etc/weir /var/lib/weir /var/lib/weir-key /var/lib/weir-report /var/log/weir /var/spool/weir

# ---- what is installed: locked, by hash, from wheels only -----------------------------------------

FROM base AS build
WORKDIR /src
RUN python -m venv /opt/weir
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: \
    -r requirements.lock
COPY LICENSE README.md pyproject.toml ./
COPY gateway gateway
COPY loadtest loadtest
COPY origin origin
COPY pages pages
COPY protocol protocol
COPY spark spark
COPY weir weir
COPY wire wire
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM build AS build-spark
COPY requirements-spark.lock ./
# pyspark is published as source only; building it compiles nothing.
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-build-isolation \
    --only-binary :all: --no-binary pyspark -r requirements-spark.lock

# ---- origin, gateway, and the commands ------------------------------------------------------------

FROM base AS weir
COPY --from=build /opt/weir /opt/weir
COPY configs /opt/weir/configs
WORKDIR /opt/weir
USER 10001:10001
EXPOSE 4437 8080 9090
# Of the origin; whoever runs another command says what its health is.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["weir", "health", "http://127.0.0.1:4437/readyz"]
ENTRYPOINT ["weir"]
CMD ["origin", "--profile", "prod"]

# ---- the same with Spark --------------------------------------------------------------------------

FROM base AS weir-spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/weir /opt/weir
COPY configs /opt/weir/configs
WORKDIR /opt/weir
USER 10001:10001
ENTRYPOINT []
CMD ["weir", "report", "--help"]
