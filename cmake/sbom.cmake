# Lists the components that are compiled into the Python module, in CycloneDX format, as
# turnout-<version>.dist-info/sboms/turnout.cdx.json of the wheel (PEP 770).
function(turnout_component name version license purl)
  string(CONFIGURE [[{
      "type": "library",
      "name": "@name@",
      "version": "@version@",
      "licenses": [{"expression": "@license@"}],
      "bom-ref": "@purl@",
      "purl": "@purl@"
    }]] component @ONLY)
  set_property(GLOBAL APPEND PROPERTY turnout_components "${component}")
endfunction()

turnout_component(highway ${highway_version} "Apache-2.0 OR BSD-3-Clause"
  pkg:github/google/highway@${highway_version})
turnout_component(nanobind ${nanobind_VERSION} BSD-3-Clause pkg:pypi/nanobind@${nanobind_VERSION})
file(STRINGS ${NB_DIR}/ext/robin_map/include/tsl/robin_growth_policy.h lines REGEX "VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
string(REGEX REPLACE "[^;]* ([0-9]+)" "\\1" robin_map_version "${lines}")
list(JOIN robin_map_version . robin_map_version)  # bundled with nanobind
turnout_component(robin-map ${robin_map_version} MIT pkg:github/Tessil/robin-map@v${robin_map_version})
foreach(runtime ${turnout_static_runtimes})  # LLVM's, with the compiler's version
  turnout_component(${runtime} ${CMAKE_CXX_COMPILER_VERSION} "Apache-2.0 WITH LLVM-exception"
    pkg:generic/${runtime}@${CMAKE_CXX_COMPILER_VERSION})
endforeach()
get_property(components GLOBAL PROPERTY turnout_components)
list(JOIN components ", " components)
configure_file(${PROJECT_SOURCE_DIR}/cmake/turnout.cdx.json.in ${CMAKE_CURRENT_BINARY_DIR}/turnout.cdx.json @ONLY)
if(SKBUILD_METADATA_DIR)  # set when a wheel is built
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/turnout.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms
    COMPONENT python)
endif()
