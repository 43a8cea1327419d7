// One duel: duel.html#run=ID
"use strict";

function showDuel() {
  deadheat.show(async () => {
    const { run } = deadheat.readState();
    if (!run) throw new Error("This address names no duel");
    return deadheat.blocks.page(await deadheat.load(`duels/${run}`));
  });
}
addEventListener("hashchange", showDuel);
showDuel();
