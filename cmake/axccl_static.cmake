# The static library, libaxccl.a: one object that holds the whole library and shows the names of its API alone, so that it
# takes part in a program's link as libaxccl.so does. It lies beside libaxccl.so, or with BUILD_SHARED_LIBS=OFF in its place.

# What a program that links libaxccl.a needs besides. The C++ library is there for programs in C.
set(AXCCL_STATIC_LIBRARIES stdc++ m pthread dl)
# Threads of the library live as long as the process, and so must a plugin that it is part of. Executables ignore this.
set(AXCCL_STATIC_OPTIONS -Wl,-z,nodelete)

# axccl_archives_below(TARGET RESULT): the static libraries of this tree that the target is made of.
function(axccl_archives_below target result)
  set(found)
  set(left ${target})
  set(seen)
  while(left)
    list(POP_FRONT left next)
    if(next IN_LIST seen OR NOT TARGET ${next})
      continue()
    endif()
    list(APPEND seen ${next})
    get_target_property(type ${next} TYPE)
    get_target_property(imported ${next} IMPORTED)
    if(type STREQUAL "STATIC_LIBRARY" AND NOT imported)
      list(APPEND found ${next})
    endif()
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(libraries ${next} ${property})
      if(libraries)
        string(REGEX REPLACE "\\$<LINK_ONLY:([^>]*)>" "\\1" libraries "${libraries}")
        list(APPEND left ${libraries})
      endif()
    endforeach()
  endwhile()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# axccl_static_library(OBJECTS_OF): makes libaxccl.a of that target's objects and of what it links. Called when all folders
# are there.
function(axccl_static_library target)
  axccl_archives_below(${target} archives)
  list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  set(joined ${CMAKE_BINARY_DIR}/CMakeFiles/axccl_joined.o)
  set(library ${CMAKE_BINARY_DIR}/libaxccl.a)
  # Groups that linkers drop as duplicates are dissolved: the names that they go by become local. objcopy leaves names
  # that are unique in a process (of static variables in inline functions; nm: u) as they are, unless they are made weak
  # first. Undefined names stay strong, because a linker takes no member out of an archive for a weak one.
  add_custom_command(OUTPUT ${library} DEPENDS $<TARGET_OBJECTS:${target}> ${archives} VERBATIM COMMAND_EXPAND_LISTS
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${joined} $<TARGET_OBJECTS:${target}>
      -Wl,--start-group ${files} -Wl,--end-group
    COMMAND sh -c "\"$1\" --defined-only \"$2\" >\"$2.names\" && sed -n 's/.* u //p' \"$2.names\" >\"$2.unique\"" sh ${CMAKE_NM} ${joined}
    COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=${joined}.unique ${joined}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=nccl* --keep-global-symbol=pnccl*
      --keep-global-symbol=axccl* ${joined}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
    COMMAND ${CMAKE_AR} rcs ${library} ${joined}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${joined} ${joined}.names ${joined}.unique
    COMMENT "Joining libaxccl.a")
  add_custom_target(axccl_static ALL DEPENDS ${library})
  install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endfunction()
