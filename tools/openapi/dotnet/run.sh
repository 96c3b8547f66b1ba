#!/usr/bin/env bash
# Generates clients in C# by NSwag from the document that a running Weir serves, for both of its JSON libraries,
# compiles them, and runs them against that Weir. NSwag comes from npm. It and the compiler run on Mono (Debian:
# mono-runtime mono-mcs libmono-cil-dev), because .NET's own SDK is in no registry of Debian or npm.
set -euo pipefail
cd "$(dirname "$0")/../../.."
for program in mono mcs npm curl; do
  command -v $program >/dev/null || { echo "dotnet/run.sh: $program is not installed" >&2; exit 1; }
done
here=$PWD/tools/openapi/dotnet port=${PORT:-7091} cms=${CMS_PORT:-7092} dir=$PWD/build/nswag
mkdir -p "$dir"
[ -d "$dir/node_modules/nswag" ] ||
  npm install --no-save --no-audit --no-fund --ignore-scripts --prefix "$dir" nswag@14.7.1
bin=$dir/node_modules/nswag/bin/binaries/Win

rm -rf "$dir/data"
build/weir serve --demo --data "$dir/data" --listen "127.0.0.1:$port" --demo-cms "127.0.0.1:$cms" >"$dir/weir.log" 2>&1 &
weir=$!
trap 'kill $weir; wait $weir || true' EXIT
curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors "http://127.0.0.1:$port/api/openapi.json" >"$dir/openapi.json"

for library in NewtonsoftJson SystemTextJson; do
  out=$dir/$library && rm -rf "$out" && mkdir "$out" && cd "$out"
  mono "$bin/NSwag.exe" openapi2csclient /input:../openapi.json /output:Weir.cs /classname:WeirClient /namespace:Weir \
    /ParameterDateTimeFormat:o /GenerateOptionalPropertiesAsNullable:true /JsonLibrary:$library >nswag.log
  libraries=(System.Net.Http System.ComponentModel.DataAnnotations System.Runtime.Serialization)
  own=(Newtonsoft.Json)
  [ $library = NewtonsoftJson ] || own=(netstandard System.Text.Json System.Text.Encodings.Web System.Memory
    System.Buffers System.Numerics.Vectors System.Runtime.CompilerServices.Unsafe System.IO.Pipelines
    System.Threading.Tasks.Extensions Microsoft.Bcl.AsyncInterfaces System.ValueTuple)
  for one in "${own[@]}"; do cp "$bin/$one.dll" .; done
  mcs -nowarn:1591,1573,1587,0612,0618,0472,8625 -langversion:latest -out:client.exe \
    $(printf -- '-r:%s.dll ' "${libraries[@]}" "${own[@]}") Weir.cs "$here/Client.cs"
  echo "== NSwag 14.7.1, $library"
  mono client.exe "http://127.0.0.1:$port" "$library"
done
