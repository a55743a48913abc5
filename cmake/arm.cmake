# Arm from another machine: Debian's cross-compiler, and qemu to run what it makes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # a note of what g++ 10 changed
# An Armv8.0 CPU, so that an instruction it lacks is an error.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
# By a link, because the headers beside Highway's are for the machine that compiles.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK /usr/include/hwy ${CMAKE_BINARY_DIR}/include/hwy SYMBOLIC)
set(HWY_INCLUDE_DIR ${CMAKE_BINARY_DIR}/include)
