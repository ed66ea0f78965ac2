# Run by cpack between collecting files and making packages. Debug information goes from all files into the package of it,
# where gdb finds it by build id. Paths to libraries go as well: what is in /usr/lib needs none.
cmake_minimum_required(VERSION 3.25)
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()  # the source archive
endif()
find_program(OBJCOPY objcopy REQUIRED)
find_program(READELF readelf REQUIRED)
set(debug_folder ${CPACK_TEMPORARY_DIRECTORY}/debug/usr/lib/debug/.build-id)

function(split_debug file)
  execute_process(COMMAND ${READELF} -n ${file} OUTPUT_VARIABLE notes ERROR_QUIET)
  if(NOT notes MATCHES "Build ID: ([0-9a-f][0-9a-f])([0-9a-f]+)")
    return()  # a script, or an archive
  endif()
  set(debug ${debug_folder}/${CMAKE_MATCH_1}/${CMAKE_MATCH_2}.debug)
  get_filename_component(folder ${debug} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${OBJCOPY} --only-keep-debug --compress-debug-sections ${file} ${debug} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${OBJCOPY} --strip-unneeded --remove-section=.comment --add-gnu-debuglink=${debug} ${file}
    COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD ${debug} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endfunction()

file(GLOB_RECURSE files LIST_DIRECTORIES FALSE ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(file ${files})
  if(IS_SYMLINK ${file} OR file MATCHES "/debug/usr/")
    continue()
  endif()
  if(file MATCHES "/(bin|lib)/[^/]*$|/axccl/(dropin|softgpu)/[^/]*$|/axccl/[^/]*\\.so$")
    if(file MATCHES "\\.a$")
      execute_process(COMMAND ${OBJCOPY} --strip-debug ${file} COMMAND_ERROR_IS_FATAL ANY)
    else()
      split_debug(${file})
      file(RPATH_REMOVE FILE ${file})
    endif()
  endif()
endforeach()
