//! The attributes by which a function is a test of the built program.

use proc_macro::TokenStream;

/// Makes a function a test that runs beside others: `#[test(Namespaces, Tool("ping"))]` names what it needs, as variants of `Need`.
///
/// With `serial` as the first word it runs alone, because it measures time or uses what the machine has once. `each(CASES)` before
/// the needs makes a test of each case: the function is called with it, and the test's name ends with it.
#[proc_macro_attribute]
pub fn test(needs: TokenStream, function: TokenStream) -> TokenStream {
    submitted("submit_test", &needs, function)
}

/// Makes a function that adds tests to a suite one of those that are asked for tests.
#[proc_macro_attribute]
pub fn tests(_: TokenStream, function: TokenStream) -> TokenStream {
    submitted("submit_tests", &TokenStream::new(), function)
}

/// The function, and behind it a call of this macro of test-support with the function's name.
fn submitted(by: &str, needs: &TokenStream, function: TokenStream) -> TokenStream {
    let words = function.clone().into_iter().map(|word| word.to_string());
    let name = words.skip_while(|word| word != "fn").nth(1);
    let name = name.expect("a function has a name");
    let call = format!("::test_support::{by}! {{ {name}; {needs} }}");
    let call: TokenStream = call.parse().expect("a call of a macro");
    function.into_iter().chain(call).collect()
}
