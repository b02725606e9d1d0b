//! Attributes that make a function a test of the built program.

use proc_macro::TokenStream;

/// Makes a function a test that runs in parallel with others: `#[test(Namespaces, Tool("ping"))]` lists its
/// requirements, as variants of `Need`.
///
/// With `serial` as the first word the test runs alone, because it measures time or uses something that the machine has
/// only once. `each(CASES)` before the requirements makes a test of each case: the function is called with the case,
/// and the name of the test ends with it.
#[proc_macro_attribute]
pub fn test(needs: TokenStream, function: TokenStream) -> TokenStream {
    submitted("submit_test", &needs, function)
}

/// Registers a function that adds tests to a suite.
#[proc_macro_attribute]
pub fn tests(_: TokenStream, function: TokenStream) -> TokenStream {
    submitted("submit_tests", &TokenStream::new(), function)
}

/// Returns the function, followed by a call of this macro of test-support with the function's name.
fn submitted(by: &str, needs: &TokenStream, function: TokenStream) -> TokenStream {
    let words = function.clone().into_iter().map(|word| word.to_string());
    let name = words.skip_while(|word| word != "fn").nth(1);
    let name = name.expect("a function has a name");
    let call = format!("::test_support::{by}! {{ {name}; {needs} }}");
    let call: TokenStream = call.parse().expect("a call of a macro");
    function.into_iter().chain(call).collect()
}
