# `cpack`: Debian packages and a source archive. The parts of an installation are components, one for each package: programs
# (axccl), library (libaxccl0), development (libaxccl-dev), softgpu (axccl-softgpu), and debug (axccl-dbgsym), which gets
# the debug information of all others (axccl_split_debug.cmake).

set(AXCCL_MAINTAINER "AxCCL developers <axccl@users.noreply.github.com>" CACHE STRING "Maintainer that packages name")

# axccl_component(NAME PACKAGE SECTION SUMMARY TEXT CONTENTS DEPENDS COMPONENT...): what Debian asks of every package.
function(axccl_component name package section summary text contents)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  string(TOUPPER ${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}\n${contents}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DEPENDS ${ARG_DEPENDS} PARENT_SCOPE)
  install(FILES ${CMAKE_BINARY_DIR}/packages/copyright ${CMAKE_BINARY_DIR}/packages/changelog.gz
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT ${name} EXCLUDE_FROM_ALL)
endfunction()

# The copyright and the changelog of all packages.
function(axccl_package_texts)
  set(to ${CMAKE_BINARY_DIR}/packages)
  file(CONFIGURE OUTPUT ${to}/copyright @ONLY CONTENT
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: AxCCL

Files: *
Copyright: 2026 the AxCCL developers
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
")
  file(CONFIGURE OUTPUT ${to}/shlibs @ONLY CONTENT
"libaxccl @PROJECT_VERSION_MAJOR@ libaxccl0 (>= @PROJECT_VERSION@)
libaxccl-malloc @PROJECT_VERSION_MAJOR@ libaxccl0 (>= @PROJECT_VERSION@)
")
  file(CONFIGURE OUTPUT ${to}/triggers CONTENT "activate-noawait ldconfig\n")
  file(CONFIGURE OUTPUT ${to}/changelog @ONLY CONTENT
"axccl (@PROJECT_VERSION@) unstable; urgency=medium

  * Version @PROJECT_VERSION@.

 -- @AXCCL_MAINTAINER@  Thu, 01 Jan 2026 00:00:00 +0000
")
  execute_process(COMMAND gzip -9nc ${to}/changelog OUTPUT_FILE ${to}/changelog.gz)
endfunction()

# Called last, when all is installed that will be.
function(axccl_packages)
  axccl_package_texts()
  set(text "Collectives on tensors of any layout, for host memory and CUDA GPUs, with\nthe API of NCCL.")
  axccl_component(programs axccl utils "programs of the AxCCL communication library"
    "${text}" "This package has axccl-info, axccl-plan, axccl-program, and what times them." DEPENDS library)
  axccl_component(library libaxccl0 libs "AxCCL communication library"
    "${text}" "This package has the library, and libnccl.so.2 for programs built for NCCL.")
  axccl_component(development libaxccl-dev libdevel "AxCCL communication library, files for development"
    "${text}" "This package has headers, the static library, and what builds look for." DEPENDS library)
  set(components programs library development debug)
  if(TARGET softgpu_cudart12 AND NOT AXCCL_SANITIZE)
    axccl_component(softgpu axccl-softgpu utils "GPU in software for CUDA programs"
      "Runs CUDA programs, unchanged, on machines without a GPU: threads of the CPU\nare the devices, and kernels run from PTX."
      "Start them with softgpu run.")
    list(APPEND components softgpu)
  endif()
  axccl_component(debug axccl-dbgsym debug "debug information of AxCCL's packages"
    "${text}" "This package has the debug information of all others.")
  set(CPACK_COMPONENTS_ALL ${components})

  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME axccl)
  set(CPACK_PACKAGE_VENDOR AxCCL)
  set(CPACK_PACKAGE_CONTACT ${AXCCL_MAINTAINER})
  set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING IGNORE)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/softgpu)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packages/shlibs
    ${CMAKE_BINARY_DIR}/packages/triggers)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libexpat1, libgcrypt20, libhwloc15, libucx0")  # loaded where they are found
  set(CPACK_DEBIAN_DEBUG_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS libsodium-dev)  # of the static library
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/axccl_split_debug.cmake)

  set(CPACK_SOURCE_GENERATOR TXZ)
  set(CPACK_SOURCE_PACKAGE_FILE_NAME axccl-${PROJECT_VERSION})
  set(CPACK_SOURCE_IGNORE_FILES "/\\\\.git/;/\\\\.git$;/build/;/shared/;${CMAKE_BINARY_DIR}/")
  include(CPack)
endfunction()
