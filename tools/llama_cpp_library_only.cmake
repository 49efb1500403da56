# Only llama.cpp's library is wanted: without its programs' common code, a third of the build.
# llama-cpp-python forces the cache entry on; a normal variable comes before that (CMP0126).
set(LLAMA_BUILD_COMMON OFF)
