//! libweft.so: the C ABI of libibverbs and librdmacm for unmodified programs.
