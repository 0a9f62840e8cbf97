# SPDX-License-Identifier: Apache-2.0
# The CPU kernels: one folder of src/backend/cpu/kernel each, as in folders.cmake. RA__HAVE_<FOLDER> is how
# kernel.list knows its rows.
#
# Sets RINGATTN_KERNEL_SOURCES and RINGATTN_KERNEL_DEFINITIONS.

set(RINGATTN_KERNELS "" CACHE STRING "CPU kernels to build, e.g. scalar;avx2; empty = all")
set(RINGATTN_KERNEL_ONLY ${RINGATTN_KERNELS})
ringattn_folders(RINGATTN_KERNEL ${PROJECT_SOURCE_DIR}/src/backend/cpu/kernel RA__HAVE_ "kernel")
