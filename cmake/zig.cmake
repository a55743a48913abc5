# Toolchain for the wheels of ./dev wheel: clang, libc++ and the symbols of glibc 2.17, all from PyPI's ziglang.
# TURNOUT_ZIG is a folder with the programs cc, c++ and ar for TURNOUT_ZIG_MACHINE (x86_64 or aarch64), and with a
# libgcc_s.so.1 to link with; tools/release/zig.py writes them.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TURNOUT_ZIG TURNOUT_ZIG_MACHINE)
if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL TURNOUT_ZIG_MACHINE)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${TURNOUT_ZIG_MACHINE})
endif()
set(CMAKE_C_COMPILER ${TURNOUT_ZIG}/cc)
set(CMAKE_CXX_COMPILER ${TURNOUT_ZIG}/c++)
set(CMAKE_AR ${TURNOUT_ZIG}/ar)
set(CMAKE_RANLIB :)  # ar has written the index
if(TURNOUT_ZIG_MACHINE STREQUAL x86_64)
  set(TURNOUT_BASELINE -march=x86_64_v2 -mpclmul -maes)  # zig has its own spelling
endif()
set(TURNOUT_MODULE_OPTIONS -include cstdio)  # nanobind's headers use it, and libc++ does not include it
set(turnout_static_runtimes libc++ libc++abi)  # for the list of components, cmake/sbom.cmake
set(CMAKE_CXX_FLAGS_INIT -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)  # the same bytes in any folder
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s ${TURNOUT_ZIG}/libgcc_s.so.1")
include(${CMAKE_CURRENT_LIST_DIR}/highway_alone.cmake)
