# For toolchains that must not see the host's system headers: a folder with only Highway's headers.
if(NOT TURNOUT_HIGHWAY)
  set(TURNOUT_HIGHWAY /usr/include/hwy)
endif()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${TURNOUT_HIGHWAY} ${CMAKE_BINARY_DIR}/include/hwy SYMBOLIC)
set(HWY_INCLUDE_DIR ${CMAKE_BINARY_DIR}/include)
