# What `cmake --install` puts where, and the links that let programs built for NCCL find this library.
#
# nccl.h and libnccl.so go to folders of their own, because NVIDIA's package owns those names: the header to
# include/axccl/nccl.h, beside axccl.h which includes it, the links to lib/axccl/dropin.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# axccl_dropin_links(TARGET): gives the shared library its SONAME and makes build/dropin/libnccl.so and libnccl.so.2, so
# that LD_LIBRARY_PATH=build/dropin runs a program linked against NCCL on this library.
function(axccl_dropin_links target)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME axccl VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR})
  set(folder ${CMAKE_BINARY_DIR}/dropin)
  file(MAKE_DIRECTORY ${folder})
  foreach(name libnccl.so libnccl.so.2)
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:${target}> ${folder}/${name})
  endforeach()
endfunction()

# Relative to the installed place, so that an installation can be moved.
function(axccl_install_dropin_links)
  set(folder ${CMAKE_BINARY_DIR}/install-dropin)
  file(MAKE_DIRECTORY ${folder})
  foreach(name libnccl.so libnccl.so.2)
    file(CREATE_LINK ../../libaxccl.so.${PROJECT_VERSION_MAJOR} ${folder}/${name} SYMBOLIC)
    install(FILES ${folder}/${name} DESTINATION ${CMAKE_INSTALL_LIBDIR}/axccl/dropin)
  endforeach()
endfunction()

# axccl_install_programs(TARGET...): those that exist go to bin/ and find the library from there.
function(axccl_install_programs)
  file(RELATIVE_PATH to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  foreach(program ${ARGN})
    if(TARGET ${program})
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
endfunction()

function(axccl_install)
  install(TARGETS axccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  axccl_install_dropin_links()
  install(FILES ${PROJECT_SOURCE_DIR}/include/nccl.h ${PROJECT_SOURCE_DIR}/include/axccl/axccl.h
                ${PROJECT_SOURCE_DIR}/include/axccl/channels.h ${PROJECT_SOURCE_DIR}/include/axccl/types.h
                ${PROJECT_SOURCE_DIR}/include/axccl/views.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axccl)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  axccl_install_programs(axccl-info axccl-plan all_reduce_perf all_gather_perf reduce_scatter_perf broadcast_perf
    reduce_perf alltoall_perf gather_perf scatter_perf sendrecv_perf hypercube_perf strided_perf)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/axccl)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/axcclConfig.cmake.in
    ${CMAKE_BINARY_DIR}/axcclConfig.cmake INSTALL_DESTINATION ${package}
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/axcclConfig.cmake ${CMAKE_BINARY_DIR}/axcclConfigVersion.cmake
    DESTINATION ${package})

  file(RELATIVE_PATH AXCCL_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" AXCCL_PC_TO_PREFIX "${AXCCL_PC_TO_PREFIX}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/axccl.pc.in ${CMAKE_BINARY_DIR}/axccl.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/axccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
