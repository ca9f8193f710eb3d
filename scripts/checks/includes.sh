#!/usr/bin/env bash
# scripts/checks/includes.sh [TREE]: do includes follow the arrows of the architecture?
#
#   devices < ops < controlflow < actors < cluster < apps
#                   controlflow < autodiff ......... < apps
#
# A folder includes itself and the folders before it; autodiff and actors never include each other.
# The table below orders their sub-folders. A library is included only where the design permits it.
# Each violation is named by file and line.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

# The sub-folders that hold code. A folder includes itself and the folders left of a `<` before it.
# Folders between two `<` do not include each other, and neither do folders of two rows. `*` is any
# folder at that place, `.` the files beside the sub-folders. A row that starts with `<` continues
# the row above it.
order='
devices: base < threads tensor < scalar < device < list cpu
  < cpu/levels cpu/products cpu/elements < cpu/nn < sim
  < cuda/kernels < cuda/runtime < cuda/programs < cuda/libraries < cuda
ops: graph < eager families < passes < library/* < collectives < mesh
ops: format
controlflow: . < library resident
autodiff: . < parallel
actors: runtime frames < observe < placement < plan < executor < engine < trace
  < events < dependence
cluster: transport/net < transport < transport/channel transport/sim < transport/zeromq
  < membership < protocol < runs checkpoint < node < inspect training
'

status=0
folders=()
for folder in devices ops controlflow autodiff actors cluster apps test; do
  [ ! -d $folder ] || folders+=("$folder")
done
sources=$(find "${folders[@]}" \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' \) | sort)
ORDER=$order xargs awk <<<"$sources" '
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
    library["oneDNN"] = "^(dnnl|oneapi/)"; home["oneDNN"] = "^(devices|test/(bench|devices))/"
    library["Eigen"] = "^(Eigen|unsupported/Eigen)"; home["Eigen"] = "^(devices|test)/"
    library["xbyak"] = "^xbyak/";                    home["xbyak"] = "^devices/scalar/"
    library["CUDA"] = "^(cuda|cublas|cudnn|cusolver|cusparse|cufft|curand|nvrtc|nccl)"
    home["CUDA"] = "^(devices|test/support|test/devices)/cuda/"
    # layer[f] is the number of `<` left of f, row[f] the row of f.
    words = split(ENVIRON["ORDER"], word, " ")  # newlines are blanks too
    for (w = 1; w <= words; ++w) {
      if (word[w] == "<") { ++at; continue }
      if (sub(/:/, "", word[w])) { top = word[w]; ordered[top] = 1; ++rows; at = 0; continue }
      folder = word[w] == "." ? top : top "/" word[w]
      layer[folder] = at
      row[folder] = rows
    }
    edit = "has no place in the order of sub-folders; add it to scripts/checks/includes.sh"
  }
  function report(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; bad = 1 }
  # The row of the table for the folder of a path, or "".
  function listed(path,   folder) {
    folder = path; sub(/\/[^\/]*$/, "", folder)
    if (folder in layer) return folder
    sub(/\/[^\/]*$/, "/*", folder)
    return folder in layer ? folder : ""
  }
  FNR == 1 {
    split(FILENAME, path, "/")
    folder = path[1]
    here = listed(FILENAME)
    if (folder in ordered && here == "") {
      name = FILENAME; sub(/\/[^\/]*$/, "", name)
      report(name "/ " edit)
    }
  }
  /^[ \t]*#[ \t]*include[ \t]*"/ { report("include <troupe/folder/file.hpp>, not a relative path") }
  /^[ \t]*#[ \t]*include[ \t]*</ {
    match($0, /<[^>]*>/)
    name = substr($0, RSTART + 1, RLENGTH - 2)
    if (name ~ /^troupe\//) {
      split(name, part, "/")
      to = name == "troupe/functions.hpp" ? "ops" \
        : name ~ /^troupe\/(cuda_prelude[.]hpp|known_plugins[.]def)$/ ? "devices" \
        : name ~ /^troupe\/[^\/]*$/ ? "apps" : part[2]
      if (index(" " may[folder] " ", " " to " ") == 0)
        report(folder "/ must not include " to "/ (<" name ">)")
      if (name ~ /^troupe\/apps\/(troupe|cluster|op)[.]hpp$/)
        report("include <troupe/" part[3] ">: only that is installed")
      # Files that users read or copy show the three public headers and those of the example itself.
      if (FILENAME ~ /^(apps\/examples|test\/package)\// &&
          name !~ /^troupe\/(troupe|cluster|op)[.]hpp$/ && name !~ /^troupe\/apps\/examples\//)
        report("users include <troupe/troupe.hpp>, <troupe/cluster.hpp> and <troupe/op.hpp> alone" \
          " (<" name ">)")
      # It is generated from ops/library, but sources of the folders below use the functions too.
      there = listed(substr(name, 8))
      if (name == "troupe/functions.hpp")
        there = FILENAME ~ /\.cpp$/ ? "ops/graph" : "ops/library/*"
      if (name == "troupe/cuda_prelude.hpp") there = "devices/cuda/programs"
      # Descriptors of plug-ins, which name no header.
      if (name == "troupe/known_plugins.def") next
      if (to == folder && here != "" && there != here) {
        if (there == "") report("the folder of <" name "> " edit)
        else if (row[there] != row[here] || layer[there] >= layer[here])
          report(here "/ must not include " there "/ (<" name ">)")
      }
    }
    for (l in library)
      if (name ~ library[l] && FILENAME !~ home[l]) report(l " does not belong here (<" name ">)")
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
