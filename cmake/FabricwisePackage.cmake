# SPDX-License-Identifier: Apache-2.0
#
# What is installed, and the Debian package of it (cpack -G DEB).
install(TARGETS fabricwised fabricwise RUNTIME)
if(TARGET fabricwise-worker)
  install(TARGETS fabricwise-worker RUNTIME)
endif()
install(DIRECTORY deploy/profiles
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fabricwise
  FILES_MATCHING PATTERN "*.json")
install(FILES README.md docs/alerts.md docs/importing.md docs/measuring.md
        docs/metrics.md docs/modes.md docs/running.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES deploy/systemd/fabricwised.service DESTINATION lib/systemd/system)

# The daemon's own account of its options, each with its default.
set(conf ${PROJECT_BINARY_DIR}/etc/fabricwise/fabricwised.conf)
add_custom_command(OUTPUT ${conf}
  COMMAND ${CMAKE_COMMAND} -E make_directory etc/fabricwise
  COMMAND fabricwised --config "" --print-config
          | sed "s/^[a-z]/#&/" > ${conf}
  DEPENDS fabricwised VERBATIM)
add_custom_target(fabricwised_conf ALL DEPENDS ${conf})
install(FILES ${conf} DESTINATION ${CMAKE_INSTALL_DATADIR}/fabricwise)

set(CPACK_PACKAGE_NAME fabricwise)
set(CPACK_PACKAGE_CONTACT "The Fabricwise developers <fabricwise@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "measures a GPU node and advises how to run a model on it")
set(CPACK_PACKAGE_DESCRIPTION
  "A daemon for GPU nodes that measures what the fabric and the GPUs really do
and answers, over gRPC, which parallelism a language model should run with at
a given concurrency; a client to ask it; recorded nodes to ask without a GPU.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALLED_DIRECTORIES ${PROJECT_BINARY_DIR}/etc /etc)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# NCCL and cuBLASLt come with the GPU software of a node, from many places; the
# worker says which it misses.
set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/debian/postinst
  ${PROJECT_SOURCE_DIR}/deploy/debian/postrm
  ${PROJECT_SOURCE_DIR}/deploy/debian/prerm)
include(CPack)
