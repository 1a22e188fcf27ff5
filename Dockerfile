# syntax=docker/dockerfile:1
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY cmd cmd
COPY proxy proxy
COPY store store
ARG TARGETOS TARGETARCH VERSION=devel
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.release=$VERSION" -o /hookonce ./cmd/hookonce

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=devel
LABEL org.opencontainers.image.title="hookonce" \
      org.opencontainers.image.description="Makes each webhook event run once, in front of an unmodified application" \
      org.opencontainers.image.source="https://github.com/hookonce/hookonce" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /hookonce /hookonce
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["/hookonce"]
