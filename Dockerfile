# One stage builds every binary, one small image per target runs one of them:
#   docker build --target controller -t skipper-controller .
# `make images` makes the same images without a container engine.
ARG GO_VERSION=1.26.8
FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0
RUN for c in controller extproc echo skipper; do go build -trimpath -ldflags="-s -w" -o /out/$c ./cmd/$c; done
# Each image says what is in it.
RUN cd deploy/local && for c in controller extproc echo skipper; do go run ./sbom /out/$c > /out/$c.cdx.json; done

# Static binaries need no operating system; user and group 65532 own nothing.
FROM scratch AS controller
COPY --from=build /out/controller /controller
COPY --from=build /out/controller.cdx.json /sbom.cdx.json
USER 65532:65532
ENTRYPOINT ["/controller"]

FROM scratch AS extproc
COPY --from=build /out/extproc /extproc
COPY --from=build /out/extproc.cdx.json /sbom.cdx.json
USER 65532:65532
ENTRYPOINT ["/extproc"]

# Envoy as it is published, run by the same user; the node of `make up` packs
# the same version from its Python wheel.
FROM envoyproxy/envoy:distroless-v1.40.0 AS envoy
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/envoy"]

FROM scratch AS echo
COPY --from=build /out/echo /echo
COPY --from=build /out/echo.cdx.json /sbom.cdx.json
USER 65532:65532
ENTRYPOINT ["/echo"]

# The operator's command, which also prepares gateways and keys in the cluster.
FROM scratch AS cli
COPY --from=build /out/skipper /skipper
COPY --from=build /out/skipper.cdx.json /sbom.cdx.json
USER 65532:65532
ENTRYPOINT ["/skipper"]
