# Run by cpack between installing and packing: puts what Debian wants elsewhere or otherwise where it wants it, in the
# folders that Debian packages are made of.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
file(GLOB man_pages ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/man1/*.1)
foreach(page ${man_pages})
  execute_process(COMMAND gzip -n -9 ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
# Debian's zsh does not look into /usr/share/zsh/site-functions.
file(GLOB folders ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/zsh)
foreach(folder ${folders})
  file(RENAME ${folder}/site-functions ${folder}/vendor-completions)
endforeach()
