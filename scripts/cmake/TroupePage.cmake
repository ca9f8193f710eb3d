# troupe_page(TARGET): puts the web page into TARGET: the files of cluster/inspect/page/, and dagre
# and d3 as Debian ships them, with their licences. New files of cluster/inspect/page/ are globbed.
function(troupe_page target)
  find_file(TROUPE_D3 d3.min.js PATHS /usr/share/nodejs/d3/dist NO_DEFAULT_PATH)
  find_file(TROUPE_DAGRE dagre.min.js PATHS /usr/share/nodejs/dagre/dist NO_DEFAULT_PATH)
  if(NOT TROUPE_D3 OR NOT TROUPE_DAGRE)
    message(FATAL_ERROR
      "The web page needs d3 and dagre from Debian's node-d3 and node-dagre-layout: run \
scripts/setup.")
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cluster/inspect/page/*.html
       ${CMAKE_SOURCE_DIR}/cluster/inspect/page/*.css
       ${CMAKE_SOURCE_DIR}/cluster/inspect/page/*.js ${CMAKE_SOURCE_DIR}/cluster/inspect/page/*.svg)
  set(script ${CMAKE_SOURCE_DIR}/scripts/cmake/embed_page.cmake)
  set(output ${CMAKE_BINARY_DIR}/generated/page_files.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DD3=${TROUPE_D3} -DDAGRE=${TROUPE_DAGRE}
            -DOUTPUT=${output} -P ${script}
    DEPENDS ${files} ${script} ${TROUPE_D3} ${TROUPE_DAGRE}
    COMMENT "The web page as a source" VERBATIM)
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()
