// Sphinx puts members of classes first, whose names contain a word by accident. Pages whose headings
// contain it come first here. (It is a var, because the script of Sphinx declares it again.)
var Scorer = {
  objNameMatch: 5,
  objPartialMatch: 1,
  objPrio: { 0: 2, 1: 0, 2: -1 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 10,
  term: 5,
  partialTerm: 2,
};
