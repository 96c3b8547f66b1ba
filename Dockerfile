# Weir in the image of the Functions host, for Container Apps, Kubernetes with KEDA, or any host of containers.
#
#   docker build -t weir .
#   docker build -t weir --build-arg WEIR_CONFIG=my.yaml .   # other settings than weir.yaml, from this folder
#
# The host's image is for amd64 only. Pin both images by digest in a pipeline:
#   --build-arg HOST_IMAGE=mcr.microsoft.com/azure-functions/base:4@sha256:…
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG HOST_IMAGE=mcr.microsoft.com/azure-functions/base:4

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG WEIR_CONFIG=weir.yaml
# With .git in the context, handler version names the commit.
RUN make build WEIR_CONFIG="${WEIR_CONFIG}" && ./build/app/handler version

FROM ${HOST_IMAGE}
# The host writes logs and state of its own below /home, and keys of its web server to HOME.
RUN mkdir -p /home/LogFiles /home/data /home/ASP.NET && \
    chown -R 1654:1654 /home/LogFiles /home/data /home/ASP.NET
ENV AzureWebJobsScriptRoot=/home/site/wwwroot \
    HOME=/tmp \
    AzureFunctionsJobHost__Logging__Console__IsEnabled=true \
    FUNCTIONS_WORKER_RUNTIME=custom \
    ASPNETCORE_URLS=http://+:8080
EXPOSE 8080
COPY --from=build /src/build/app /home/site/wwwroot
# By number, so that Kubernetes sees that it is not root.
USER 1654:1654
