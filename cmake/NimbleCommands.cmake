# Man pages of the programs, and completions of their command lines for bash, zsh and fish, in the build tree's `share`: made
# from what the programs say of themselves. Included when all targets are known.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(share ${CMAKE_BINARY_DIR}/share)
set(NIMBLE_MAN_PAGES "")
set(NIMBLE_BASH_COMPLETIONS "")
set(NIMBLE_ZSH_COMPLETIONS "")
set(NIMBLE_FISH_COMPLETIONS "")
foreach(name nimble nimble-analyze nimble-replay)
  list(APPEND NIMBLE_MAN_PAGES ${share}/man/man1/${name}.1)
  list(APPEND NIMBLE_BASH_COMPLETIONS ${share}/bash-completion/completions/${name})
  list(APPEND NIMBLE_ZSH_COMPLETIONS ${share}/zsh/site-functions/_${name})
  list(APPEND NIMBLE_FISH_COMPLETIONS ${share}/fish/vendor_completions.d/${name}.fish)
endforeach()
# scripts/options makes the man page of nimble from the table of options.
add_custom_command(VERBATIM
  OUTPUT ${NIMBLE_MAN_PAGES} ${NIMBLE_BASH_COMPLETIONS} ${NIMBLE_ZSH_COMPLETIONS} ${NIMBLE_FISH_COMPLETIONS}
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/commands --share ${share} $<TARGET_FILE:nimble_cli>
    $<TARGET_FILE:nimble-analyze> $<TARGET_FILE:nimble-replay>
  DEPENDS nimble_cli nimble-analyze nimble-replay ${PROJECT_SOURCE_DIR}/scripts/commands ${PROJECT_SOURCE_DIR}/scripts/options
    ${PROJECT_SOURCE_DIR}/include/nimble/internal/options.def ${PROJECT_SOURCE_DIR}/python/nimble/version.py)
add_custom_target(nimble_command_files ALL DEPENDS ${NIMBLE_MAN_PAGES})
