# What `cmake --install` puts where, in two components: `tool`, which users run, and `dev`, which the C API needs. Included
# when all targets are known.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS nimble LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tool) # the launcher looks for it there
install(TARGETS nimble_cli nimble-analyze nimble-replay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
install(FILES ${NIMBLE_MAN_PAGES} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
install(FILES ${NIMBLE_BASH_COMPLETIONS} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tool)
install(FILES ${NIMBLE_ZSH_COMPLETIONS} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tool)
install(FILES ${NIMBLE_FISH_COMPLETIONS} DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tool)
# The launcher looks for it there, and PYTHONPATH may name it; a wheel (scripts/wheel) is the other way.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/nimble DESTINATION ${CMAKE_INSTALL_DATADIR}/nimble/python COMPONENT tool
  FILES_MATCHING PATTERN *.py PATTERN py.typed PATTERN lib EXCLUDE PATTERN bin EXCLUDE PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool
  FILES_MATCHING PATTERN *.md PATTERN *.svg PATTERN *.png PATTERN site EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)

# The C API is a header that looks its functions up: there is nothing to link.
install(FILES ${PROJECT_SOURCE_DIR}/include/nimble/nimble.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/include/nimble/internal/counters.def
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble/internal COMPONENT dev)
add_library(nimble_api INTERFACE)
target_include_directories(nimble_api INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(nimble_api INTERFACE ${CMAKE_DL_LIBS})
set_target_properties(nimble_api PROPERTIES EXPORT_NAME api)
install(TARGETS nimble_api EXPORT nimble COMPONENT dev)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/nimble)
install(EXPORT nimble NAMESPACE nimble:: FILE nimbleConfig.cmake DESTINATION ${package_folder} COMPONENT dev)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/nimbleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(${PROJECT_SOURCE_DIR}/cmake/nimble.pc.in ${CMAKE_BINARY_DIR}/nimble.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nimbleConfigVersion.cmake DESTINATION ${package_folder} COMPONENT dev)
install(FILES ${CMAKE_BINARY_DIR}/nimble.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
