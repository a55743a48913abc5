# turnout_family(): called by a family's CMakeLists.txt to declare its source files. The libraries, the tests
# and the Python module are built from the files of all families.
#
#   turnout_family(
#     SOURCES         plans and their parts, compiled once
#     KERNELS         loops, compiled once per instruction set
#     C_SOURCES       the C interface of MLU-OPS
#     ACLNN_SOURCES   the C interface of CANN
#     BINDINGS        Python bindings in addition to python.cc, each named *_python.cc
#     TESTS           sources of the program <family>_test
#     C_TESTS         added to the program c_api_test
#     C_ORDER_TESTS   added to the program c_order_test, which tests the order of checks
#     ACLNN_TESTS     added to the program aclnn_test)
#
# The files operators.cc, c_operators.cc and fuzz.cc are added without being listed; every family must have them. So
# is python.cc, if it exists: it has the Python functions that do not follow from Signatures.
function(turnout_family)
  set(kinds SOURCES KERNELS C_SOURCES ACLNN_SOURCES BINDINGS TESTS C_TESTS C_ORDER_TESTS ACLNN_TESTS)
  cmake_parse_arguments(PARSE_ARGV 0 given "" "" "${kinds}")
  if(given_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "turnout_family: ${given_UNPARSED_ARGUMENTS} is unknown, expected one of ${kinds}")
  endif()
  set(given_OPERATORS operators.cc)
  set(given_C_OPERATORS c_operators.cc)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/python.cc)
    list(APPEND given_BINDINGS python.cc)
  endif()
  foreach(kind ${kinds} OPERATORS C_OPERATORS)
    list(TRANSFORM given_${kind} PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    set_property(GLOBAL APPEND PROPERTY turnout_${kind} ${given_${kind}})
  endforeach()
  get_filename_component(family ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*test.cc)
  set(listed ${given_TESTS} ${given_C_TESTS} ${given_C_ORDER_TESTS} ${given_ACLNN_TESTS})
  foreach(test ${tests})
    if(NOT test IN_LIST listed)
      message(FATAL_ERROR "turnout_family: ${test} is in no list, so it would not run")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY turnout_TESTS_of_${family} ${given_TESTS})
endfunction()

# turnout_sources(KIND variable): sets the variable to the files that all families have declared as KIND.
function(turnout_sources kind variable)
  get_property(all GLOBAL PROPERTY turnout_${kind})
  set(${variable} ${all} PARENT_SCOPE)
endfunction()
