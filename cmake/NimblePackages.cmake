# Packages of what NimbleInstall.cmake installs: a tarball of all, and for Debian and its relatives nimble-cuda and
# nimble-cuda-dev. scripts/release makes them.
set(CPACK_PACKAGE_NAME nimble-cuda)
set(CPACK_PACKAGE_VENDOR "The Nimble authors")
set(CPACK_PACKAGE_CONTACT "The Nimble authors <nimble@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tool dev) # not what other projects' CMake files would install
set(CPACK_COMPONENTS_GROUPING IGNORE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME nimble-cuda)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME nimble-cuda-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_TOOL_DESCRIPTION "libnimble.so, nimble, nimble-analyze and nimble-replay.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "The header of the C API, for CMake and pkg-config.")
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
include(CPack)
