# What `cmake --install` puts where. Included last, when all targets are known.
include(GNUInstallDirs)

install(TARGETS nimble LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}) # libnimble.so; the launcher looks for it there
install(TARGETS nimble_cli nimble-analyze nimble-replay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_BINARY_DIR}/share/man/man1/nimble.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/nimble DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN *.h PATTERN *.def)
install(FILES ${PROJECT_BINARY_DIR}/include/nimble/internal/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble/internal)
# The launcher looks for it there, and PYTHONPATH may name it; a wheel (scripts/wheel) is the other way.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/nimble DESTINATION ${CMAKE_INSTALL_DATADIR}/nimble/python FILES_MATCHING
  PATTERN *.py PATTERN py.typed PATTERN lib EXCLUDE PATTERN bin EXCLUDE PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md PATTERN *.svg)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
