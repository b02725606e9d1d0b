//! Chromium and Firefox, driven through chromedriver and geckodriver by the WebDriver protocol (W3C, "WebDriver", 2018).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use ureq::Agent;

use test_support::process::{end_of, wait_for};

/// The key of an element's reference in an answer (WebDriver, §12).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The Enter key (WebDriver, §17.4.2).
pub(crate) const ENTER: &str = "\u{e007}";

/// A browser with one page. Dropping it ends the browser.
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
}

impl Browser {
    /// Starts a browser that saves downloads to `downloads`.
    pub(crate) fn start(downloads: &Path) -> Result<Self> {
        Self::start_with(downloads, &[])
    }

    /// Starts a browser with further arguments.
    pub(crate) fn start_with(downloads: &Path, arguments: &[&str]) -> Result<Self> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0");
        // The sandbox needs rights that tests do not always have; the page is our own.
        let arguments = [&["--no-sandbox", "--disable-quic"][..], arguments].concat();
        Self::by(driver, downloads, &arguments)
    }

    /// Starts a chromedriver, which prints its port on the loopback, and a browser with these further arguments.
    pub(crate) fn by(command: Command, downloads: &Path, arguments: &[&str]) -> Result<Self> {
        Self::with(command, &capabilities(downloads, arguments))
    }

    /// Starts a geckodriver, which prints its port on the loopback, and `program`, which is Firefox or starts it.
    pub(crate) fn firefox(command: Command, program: &Path) -> Result<Self> {
        let options = json!({ "args": ["-headless"], "binary": program });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "moz:firefoxOptions": options } } });
        Self::with(command, &wanted)
    }

    fn with(mut command: Command, capabilities: &Value) -> Result<Self> {
        let mut driver = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("the driver of a browser")?;
        let port = port_of(&mut driver)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None);
        let mut browser = Self {
            driver,
            agent: config.build().into(),
            session: format!("http://127.0.0.1:{port}/session"),
        };
        let answer = browser.post("", capabilities)?;
        let id = answer["sessionId"].as_str().context("no session")?;
        browser.session = format!("{}/{id}", browser.session);
        Ok(browser)
    }

    /// Opens a page.
    pub(crate) fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Clicks the element that a CSS selector finds.
    pub(crate) fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("/element/{element}/click"), &json!({}))
            .map(drop)
    }

    /// Replaces the content of the field of that selector by typing a text.
    pub(crate) fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("/element/{element}/clear"), &json!({}))?;
        let keys = json!({ "text": text });
        self.post(&format!("/element/{element}/value"), &keys)
            .map(drop)
    }

    /// Returns the value of a JavaScript expression.
    pub(crate) fn read(&self, expression: &str) -> Result<Value> {
        self.run(&format!("return {expression}"))
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) fn wait(&self, expression: &str) -> Result<()> {
        wait_for(expression, || {
            Ok((self.read(expression)? == Value::Bool(true)).then_some(()))
        })
    }

    /// Sets the width and height of the page, in CSS pixels, and `prefers-color-scheme`.
    pub(crate) fn look(&self, size: [u32; 2], theme: &str) -> Result<()> {
        let [width, height] = size;
        let device =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let theme = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        for (command, parameters) in [
            ("Emulation.setDeviceMetricsOverride", device),
            ("Emulation.setEmulatedMedia", json!({ "features": theme })),
        ] {
            let order = json!({ "cmd": command, "params": parameters });
            self.post("/goog/cdp/execute", &order)?;
        }
        Ok(())
    }

    /// Runs a script and returns its result, or the result of the promise that it returns.
    pub(crate) fn run(&self, script: &str) -> Result<Value> {
        let script = json!({ "script": script, "args": [] });
        self.post("/execute/sync", &script)
    }

    /// Returns the errors that the page has logged so far.
    pub(crate) fn errors(&self) -> Result<Vec<String>> {
        let log = self.post("/se/log", &json!({ "type": "browser" }))?;
        let entries = log.as_array().context("no log")?;
        Ok(entries
            .iter()
            .map(|entry| entry["message"].to_string())
            .collect())
    }

    /// Ends the browser, and then its driver by SIGTERM.
    pub(crate) fn end(mut self) -> Result<()> {
        self.agent.delete(&self.session).call()?;
        kill(Pid::from_raw(self.driver.id().try_into()?), Signal::SIGTERM)?;
        end_of(&mut self.driver).map(drop)
    }

    fn element(&self, selector: &str) -> Result<String> {
        let by = json!({ "using": "css selector", "value": selector });
        let found = self.post("/element", &by)?;
        let id = found[ELEMENT].as_str().context("no reference")?;
        Ok(id.to_owned())
    }

    /// Sends a command and returns the value of its answer.
    fn post(&self, command: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{command}", self.session);
        let mut answer = self.agent.post(&url).send(body.to_string())?;
        let text = answer.body_mut().read_to_string()?;
        let mut said: Value = serde_json::from_str(&text)?;
        let why = &said["value"]["message"];
        ensure!(answer.status().is_success(), "{command} {body}: {why}");
        Ok(said["value"].take())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This also ends the browser. It fails if the driver has ended already.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Reads the port on which a driver says that it listens.
fn port_of(driver: &mut Child) -> Result<u16> {
    let stdout = driver.stdout.take().context("no output")?;
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let of_chromium = line.strip_prefix("ChromeDriver was started successfully on port ");
        let of_firefox = line.split_once("Listening on 127.0.0.1:");
        let port = of_chromium.or(of_firefox.map(|(_, port)| port))?;
        Some(port.trim_end_matches('.').to_owned())
    });
    // geckodriver prints later, too, and panics if nobody reads.
    thread::spawn(move || lines.for_each(drop));
    let port = port.context("the driver of a browser ended before it listened")?;
    Ok(port.parse()?)
}

/// A headless Chromium that contacts nothing by itself, with these further arguments.
fn capabilities(downloads: &Path, further: &[&str]) -> Value {
    let usual = [
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
    ];
    let arguments = [&usual[..], further].concat();
    json!({ "capabilities": { "alwaysMatch": {
        "goog:loggingPrefs": { "browser": "SEVERE" },
        "goog:chromeOptions": {
            "args": arguments,
            "prefs": { "download.default_directory": downloads, "download.prompt_for_download": false },
        },
    } } })
}
