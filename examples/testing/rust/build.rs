//! Links libibverbs.

fn main() {
    println!("cargo:rustc-link-lib=ibverbs");
}
