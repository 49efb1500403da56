/* The three BLAS functions that MLX's CPU build calls, forwarded to OpenBLAS as the package
 * scipy-openblas32 exports it: the same functions, each name with the prefix "scipy_".
 * Argument types are CBLAS's, with 32-bit integers; enumerations are passed as int.
 * Built by build.sh; no C library is needed. */

#define EXPORT __attribute__((visibility("default")))

void scipy_cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                       float alpha, const float *a, int lda, const float *b, int ldb,
                       float beta, float *c, int ldc);
void scipy_cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                       double alpha, const double *a, int lda, const double *b, int ldb,
                       double beta, double *c, int ldc);
void scipy_cblas_cgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                       const void *alpha, const void *a, int lda, const void *b, int ldb,
                       const void *beta, void *c, int ldc);

EXPORT void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                        float alpha, const float *a, int lda, const float *b, int ldb,
                        float beta, float *c, int ldc) {
  scipy_cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

EXPORT void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                        double alpha, const double *a, int lda, const double *b, int ldb,
                        double beta, double *c, int ldc) {
  scipy_cblas_dgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

EXPORT void cblas_cgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                        const void *alpha, const void *a, int lda, const void *b, int ldb,
                        const void *beta, void *c, int ldc) {
  scipy_cblas_cgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
