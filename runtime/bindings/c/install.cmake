# SPDX-License-Identifier: Apache-2.0
# Headers, libmoejit.so, and what CMake and pkg-config find them with. All paths in them are
# relative, so the installed folder may be moved.
include(CMakePackageConfigHelpers)

# SKBUILD is set where a wheel is built: it has neither links nor what pkg-config needs them for.
set(namelink "")
if(SKBUILD)
  set(namelink NAMELINK_SKIP)
endif()
install(TARGETS moejit_shared EXPORT moejit
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${namelink})
install(FILES ${public_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/moejit")

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/moejit")
configure_package_config_file(moejitConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/moejitConfig.cmake"
  INSTALL_DESTINATION "${package}")
# Before 1.0 a minor version may change what programs see.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/moejitConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/moejitConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/moejitConfigVersion.cmake" DESTINATION "${package}")
install(EXPORT moejit FILE moejitTargets.cmake NAMESPACE moejit:: DESTINATION "${package}")
if(SKBUILD)
  return()
endif()

file(RELATIVE_PATH MOEJIT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" MOEJIT_PC_PREFIX "${MOEJIT_PC_PREFIX}")
configure_file(moejit.pc.in moejit.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/moejit.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
