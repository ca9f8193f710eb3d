#!/usr/bin/env bash
# scripts/checks/includes.sh [TREE]: do includes follow the arrows of the architecture?
#
#   devices < ops < controlflow < actors < cluster < apps
#                   controlflow < autodiff ......... < apps
#
# A folder includes itself and those before it; autodiff and actors never include each other. A library
# appears only where the design allows it. Every violation is named by file and line.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

status=0
folders=()
for folder in devices ops controlflow autodiff actors cluster apps test; do [ ! -d $folder ] || folders+=("$folder"); done
find "${folders[@]}" \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' \) | sort | xargs awk '
  BEGIN {
    may["devices"] = "devices"
    may["ops"] = "devices ops"
    may["controlflow"] = may["ops"] " controlflow"
    may["autodiff"] = may["controlflow"] " autodiff"
    may["actors"] = may["controlflow"] " actors"
    may["cluster"] = may["actors"] " cluster"
    may["apps"] = may["cluster"] " autodiff apps"
    may["test"] = may["apps"] " test"
    # A library, what its includes look like, and the folders that may know it.
    library["CAF"] = "^caf/";                        home["CAF"] = "^(actors|cluster|apps|test)/"
    library["ZeroMQ"] = "^zmq";                      home["ZeroMQ"] = "^(cluster|test)/"
    library["msgpack"] = "^msgpack";                 home["msgpack"] = "^(cluster|test)/"
    library["CUDA"] = "^(cuda|cublas|cudnn|cusolver|cusparse|cufft|curand|nvrtc|nccl)";  home["CUDA"] = "^devices/cuda/"
    library["oneDNN"] = "^(dnnl|oneapi/)";           home["oneDNN"] = "^(devices|test/bench|test/devices)/"
    library["Eigen"] = "^(Eigen|unsupported/Eigen)";  home["Eigen"] = "^(devices|test)/"
  }
  function report(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; bad = 1 }
  /^[ \t]*#[ \t]*include[ \t]*"/ { report("include <troupe/folder/file.hpp>, not a relative path") }
  /^[ \t]*#[ \t]*include[ \t]*</ {
    match($0, /<[^>]*>/)
    name = substr($0, RSTART + 1, RLENGTH - 2)
    split(FILENAME, path, "/")
    folder = path[1]
    if (name ~ /^troupe\//) {
      split(name, part, "/")
      to = name == "troupe/functions.hpp" ? "ops" : name ~ /^troupe\/[^\/]*$/ ? "apps" : part[2]
      if (index(" " may[folder] " ", " " to " ") == 0) report(folder "/ must not include " to "/ (<" name ">)")
      if (name ~ /^troupe\/apps\/(troupe|cluster|op)[.]hpp$/) report("include <troupe/" part[3] ">: only that is installed")
      # What a user reads or copies shows the three public headers, and the headers of the example itself.
      if (FILENAME ~ /^(apps\/examples|test\/package)\// && name !~ /^troupe\/(troupe|cluster|op)[.]hpp$/ && name !~ /^troupe\/apps\/examples\//)
        report("users include <troupe/troupe.hpp>, <troupe/cluster.hpp> and <troupe/op.hpp> alone (<" name ">)")
    }
    for (l in library) if (name ~ library[l] && FILENAME !~ home[l]) report(l " does not belong here (<" name ">)")
  }
  END { exit bad }' || status=1

# The folders of the architecture are fixed; nothing else holds code beside them.
for folder in */; do
  case ${folder%/} in
    devices | ops | controlflow | autodiff | actors | cluster | apps | test | scripts | build) ;;
    *)
      echo "$folder:1: no such folder belongs at the top"
      status=1
      ;;
  esac
done
exit $status
