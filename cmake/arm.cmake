# Toolchain for Arm on another machine: Debian's cross-compiler, and qemu to run the programs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # g++ 10's note about an ABI change
# Emulate an Armv8.0 CPU, so that any newer instruction is an error.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
# A link to Highway's headers alone: the other headers in /usr/include are those of the host.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK /usr/include/hwy ${CMAKE_BINARY_DIR}/include/hwy SYMBOLIC)
set(HWY_INCLUDE_DIR ${CMAKE_BINARY_DIR}/include)
