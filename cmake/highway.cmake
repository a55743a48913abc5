# Finds Highway's headers and sets HWY_INCLUDE_DIR and highway_version. Highway is not linked.
find_path(HWY_INCLUDE_DIR hwy/highway.h HINTS ENV CONDA_PREFIX PATH_SUFFIXES include
  DOC "The folder that has hwy/highway.h")
if(NOT HWY_INCLUDE_DIR)
  message(FATAL_ERROR "Turnout needs the headers of Highway, but hwy/highway.h was not found. To install them:\n"
    "  Debian, Ubuntu   apt install libhwy-dev\n"
    "  Fedora           dnf install highway-devel\n"
    "  conda            conda install -c conda-forge libhwy\n"
    "  vcpkg            vcpkg install highway\n"
    "  Homebrew         brew install highway\n"
    "If they are elsewhere, pass -DHWY_INCLUDE_DIR=<folder that has hwy/>, or with pip\n"
    "--config-settings=cmake.define.HWY_INCLUDE_DIR=<folder that has hwy/>.")
endif()
set(highway_version "")
foreach(header base.h highway.h)  # newer versions have the numbers in base.h, older ones in highway.h
  if(NOT highway_version AND EXISTS ${HWY_INCLUDE_DIR}/hwy/${header})
    file(STRINGS ${HWY_INCLUDE_DIR}/hwy/${header} lines REGEX "#define HWY_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL " [0-9]+" numbers "${lines}")
    string(REPLACE " " "" highway_version "${numbers}")
    string(REPLACE ";" "." highway_version "${highway_version}")
  endif()
endforeach()
if(highway_version VERSION_LESS 1.0.3)
  message(FATAL_ERROR "Highway in ${HWY_INCLUDE_DIR} is version ${highway_version}, expected 1.0.3 or later")
endif()
