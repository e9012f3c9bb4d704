# What `cmake --install` puts where. Included last, when all targets are known.
include(GNUInstallDirs)

install(TARGETS nimble LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}) # libnimble.so; the launcher looks for it there
install(TARGETS nimble_cli nimble-analyze nimble-replay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/nimble DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN *.h PATTERN *.def)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
