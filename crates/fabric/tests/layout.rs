//! The mirrored structures and constants, compared with libfabric's own headers by a C program.
#![allow(clippy::unwrap_used)]

use hocket_fabric::mirrors::{constants, layouts};
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// A field that has moved would have the library call into data.
#[test]
fn structures_and_constants_are_those_of_the_headers() {
    let mut source = String::from(
        "#include <rdma/fabric.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_cm.h>\n\
         #include <rdma/fi_tagged.h>\n#include <rdma/fi_errno.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {\n",
    );
    let mut wanted = String::new();
    for (name, size, fields) in layouts() {
        writeln!(source, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        writeln!(wanted, "{name} {size}").unwrap();
        for (field, offset) in fields {
            writeln!(source, "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));").unwrap();
            writeln!(wanted, "{name}.{field} {offset}").unwrap();
        }
    }
    for (name, value) in constants() {
        writeln!(source, "printf(\"{name} %llu\\n\", (unsigned long long) {name});").unwrap();
        writeln!(wanted, "{name} {value}").unwrap();
    }
    source.push_str("return 0;\n}\n");
    let folder = std::env::temp_dir().join(format!("hocket-layout-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (file, program) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).output().unwrap();
    assert!(
        compiled.status.success(),
        "libfabric's headers (libfabric-dev) are needed:\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let found = Command::new(&program).output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), wanted);
}
