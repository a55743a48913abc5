# Rules for cmake --install. Components: runtime (shared libraries), development (headers, static libraries, files for
# CMake and pkg-config), python (the extension module, see python/CMakeLists.txt). The installed tree is relocatable.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/turnout)
install(TARGETS ${libraries} ${runtimes} EXPORT turnoutTargets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development)
install(DIRECTORY include/turnout DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT turnoutTargets NAMESPACE turnout:: DESTINATION ${config_dir} COMPONENT development)
configure_package_config_file(cmake/turnoutConfig.cmake.in turnoutConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(turnoutConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/turnoutConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/turnoutConfigVersion.cmake
  DESTINATION ${config_dir} COMPONENT development)
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
foreach(package turnout turnout-mluop turnout-aclnn turnout-mluop-runtime turnout-aclnn-runtime)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()
