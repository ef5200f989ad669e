// The page that asks for the token: puts what is typed into the address, from where the server takes it into a cookie.
"use strict";
(() => {
  const params = new URLSearchParams(location.search);
  if (params.has("token")) {
    document.getElementById("wrong").textContent = "That is not the token: fsrun up makes a new one at each start.";
    params.delete("token");
    history.replaceState(null, "", address(params));
  }

  // The part behind # never reaches the server; it goes along, so that a link leads where it should.
  function address(rest) {
    const text = rest.toString();
    return `${location.pathname}${text && `?${text}`}${location.hash}`;
  }

  document.getElementById("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    params.set("token", document.getElementById("token").value.trim());
    location.assign(address(params));
  });
})();
