# Toolchain for Arm on another machine: Debian's cross-compiler, and qemu to run the programs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # g++ 10's note about an ABI change
# Emulate an Armv8.0 CPU, so that any newer instruction is an error.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/highway_alone.cmake)
