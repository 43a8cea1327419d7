// One duel: duel.html#run=ID
"use strict";

function showDuel() {
  deadheat.show(async () => {
    const { run } = deadheat.readState();
    if (!run) throw new Error("This address names no duel");
    const duel = await deadheat.loadIfThere(`duels/${run}`);
    if (duel === null) {
      throw new Error("This duel's page was removed with the files of its night, or never written");
    }
    return deadheat.blocks.page(duel);
  });
}
addEventListener("hashchange", showDuel);
showDuel();
