/* SPDX-License-Identifier: Apache-2.0 */
/* aware.c - loaded before MPI, which then says that it takes memory of CUDA. */
int MPIX_Query_cuda_support(void);

int MPIX_Query_cuda_support(void) { return 1; }
