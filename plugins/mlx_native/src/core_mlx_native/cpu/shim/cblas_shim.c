/* The three BLAS functions that MLX's CPU build calls, forwarded to OpenBLAS as the package
 * scipy-openblas32 exports it: the same functions, each name with the prefix "scipy_".
 * Argument types are CBLAS's, with 32-bit integers; enumerations are passed as int.
 * A product with one row or one column goes to scipy_cblas_sgemv: OpenBLAS's sgemm packs the whole
 * matrix first, which takes two to six times as long as reading it once. MLX calls nothing but
 * gemm, and decoding one sequence is made of such products.
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

void scipy_cblas_sgemv(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                       const float *x, int incx, float beta, float *y, int incy);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* y = alpha * op(a) x + beta * y, with op(a) of size rows x columns, stored by rows. */
static void matrix_vector(int trans, int rows, int columns, float alpha, const float *a, int lda,
                          const float *x, int incx, float beta, float *y, int incy) {
  if (beta == 0)  /* y may hold anything, NaN included */
    for (int i = 0; i < rows; i++) y[(long)i * incy] = 0;
  if (trans == NO_TRANS)
    scipy_cblas_sgemv(ROW_MAJOR, NO_TRANS, rows, columns, alpha, a, lda, x, incx, beta, y, incy);
  else
    scipy_cblas_sgemv(ROW_MAJOR, TRANS, columns, rows, alpha, a, lda, x, incx, beta, y, incy);
}

EXPORT void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k,
                        float alpha, const float *a, int lda, const float *b, int ldb,
                        float beta, float *c, int ldc) {
  if (order == ROW_MAJOR && m == 1 && n > 0 && k > 0)  /* c' = op(b)' a' */
    matrix_vector(trans_b == NO_TRANS ? TRANS : NO_TRANS, n, k, alpha, b, ldb,
                  a, trans_a == NO_TRANS ? 1 : lda, beta, c, 1);
  else if (order == ROW_MAJOR && n == 1 && m > 0 && k > 0)
    matrix_vector(trans_a, m, k, alpha, a, lda, b, trans_b == NO_TRANS ? ldb : 1, beta, c, ldc);
  else
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
